"""Nouns of the phrasebook, grouped by what they mean.

One line a noun: ``english[/plural] | article and German singular | German plural | tags``.
A dash as the plural marks a noun that has none (water, bread).  The tag ``weak`` marks nouns
of the n-declension; every other tag is a further semantic class the noun belongs to, next to
the class named by its table.  Verbs and adjectives choose nouns by these classes.
"""

NOUN_TABLES: dict[str, str] = {
    "family": """
mother|die Mutter|Mütter
father|der Vater|Väter
brother|der Bruder|Brüder
sister|die Schwester|Schwestern
son|der Sohn|Söhne
daughter|die Tochter|Töchter
uncle|der Onkel|Onkel
aunt|die Tante|Tanten
grandmother|die Großmutter|Großmütter
grandfather|der Großvater|Großväter
nephew|der Neffe|Neffen|weak
niece|die Nichte|Nichten
grandson|der Enkel|Enkel
""",
    "job": """
teacher|der Lehrer|Lehrer
doctor|der Arzt|Ärzte
nurse|die Krankenschwester|Krankenschwestern
waiter|der Kellner|Kellner
waitress/waitresses|die Kellnerin|Kellnerinnen
actress/actresses|die Schauspielerin|Schauspielerinnen
baker|der Bäcker|Bäcker
farmer|der Bauer|Bauern|weak
pilot|der Pilot|Piloten|weak
judge|der Richter|Richter
lawyer|der Anwalt|Anwälte
painter|der Maler|Maler
gardener|der Gärtner|Gärtner
journalist|der Journalist|Journalisten|weak
policeman/policemen|der Polizist|Polizisten|weak
policewoman/policewomen|die Polizistin|Polizistinnen
mechanic|der Mechaniker|Mechaniker
cook|der Koch|Köche
butcher|der Metzger|Metzger
hairdresser|der Friseur|Friseure
tailor|der Schneider|Schneider
engineer|der Ingenieur|Ingenieure
singer|der Sänger|Sänger
secretary/secretaries|die Sekretärin|Sekretärinnen
student|der Student|Studenten|weak
pupil|der Schüler|Schüler
dentist|der Zahnarzt|Zahnärzte
musician|der Musiker|Musiker
saleswoman/saleswomen|die Verkäuferin|Verkäuferinnen
""",
    "human": """
man/men|der Mann|Männer
woman/women|die Frau|Frauen
child/children|das Kind|Kinder
boy|der Junge|Jungen|weak
girl|das Mädchen|Mädchen
guest|der Gast|Gäste
tourist|der Tourist|Touristen|weak
neighbour|der Nachbar|Nachbarn|weak
colleague|der Kollege|Kollegen|weak
boss/bosses|der Chef|Chefs
friend|der Freund|Freunde
customer|der Kunde|Kunden|weak
patient|der Patient|Patienten|weak
""",
    "apart": """
thief/thieves|der Dieb|Diebe
baby/babies|das Baby|Babys
""",
    "pet": """
dog|der Hund|Hunde
cat|die Katze|Katzen
rabbit|das Kaninchen|Kaninchen
hamster|der Hamster|Hamster
parrot|der Papagei|Papageien
""",
    "farm": """
horse|das Pferd|Pferde
cow|die Kuh|Kühe
pig|das Schwein|Schweine
goat|die Ziege|Ziegen
duck|die Ente|Enten
goose/geese|die Gans|Gänse
chicken|das Huhn|Hühner
donkey|der Esel|Esel
""",
    "wild": """
bird|der Vogel|Vögel
mouse/mice|die Maus|Mäuse
bear|der Bär|Bären|weak
lion|der Löwe|Löwen|weak
elephant|der Elefant|Elefanten|weak
monkey|der Affe|Affen|weak
snake|die Schlange|Schlangen
frog|der Frosch|Frösche
wolf/wolves|der Wolf|Wölfe
fox/foxes|der Fuchs|Füchse
tiger|der Tiger|Tiger
hedgehog|der Igel|Igel
squirrel|das Eichhörnchen|Eichhörnchen
""",
    "fruit": """
apple|der Apfel|Äpfel
pear|die Birne|Birnen
banana|die Banane|Bananen
orange|die Orange|Orangen
tomato/tomatoes|die Tomate|Tomaten|cookable
potato/potatoes|die Kartoffel|Kartoffeln|cookable
carrot|die Karotte|Karotten|cookable
onion|die Zwiebel|Zwiebeln
strawberry/strawberries|die Erdbeere|Erdbeeren
cherry/cherries|die Kirsche|Kirschen
lemon|die Zitrone|Zitronen
peach/peaches|der Pfirsich|Pfirsiche
mushroom|der Pilz|Pilze|cookable
cucumber|die Gurke|Gurken
""",
    "dish": """
cake|der Kuchen|Kuchen|bakeable
pizza|die Pizza|Pizzas|bakeable
sausage|die Wurst|Würste
roll|das Brötchen|Brötchen|bakeable
biscuit|der Keks|Kekse|bakeable
egg|das Ei|Eier|cookable
soup|die Suppe|Suppen|cookable
salad|der Salat|Salate
sandwich/sandwiches|das Sandwich|Sandwichs
pancake|der Pfannkuchen|Pfannkuchen
""",
    "massfood": """
bread|das Brot|-|bakeable
cheese|der Käse|-
rice|der Reis|-|cookable
meat|das Fleisch|-|cookable
honey|der Honig|-
chocolate|die Schokolade|-
ham|der Schinken|-
jam|die Marmelade|-
vegetables|das Gemüse|-|cookable nosubject
fruit|das Obst|-
butter|die Butter|-
yoghurt|der Joghurt|-
""",
    "drink": """
water|das Wasser|-
milk|die Milch|-
coffee|der Kaffee|-
tea|der Tee|-
beer|das Bier|-
wine|der Wein|-
juice|der Saft|-
lemonade|die Limonade|-
cocoa|der Kakao|-
""",
    "reading": """
book|das Buch|Bücher|portable flat gift
newspaper|die Zeitung|Zeitungen|portable flat
letter|der Brief|Briefe|writable portable flat sendable
novel|der Roman|Romane|flat
magazine|die Zeitschrift|Zeitschriften|flat portable
poem|das Gedicht|Gedichte|writable
report|der Bericht|Berichte|writable sendable
article|der Artikel|Artikel|writable
email|die E-Mail|E-Mails|writable sendable
message|die Nachricht|Nachrichten|writable sendable
postcard|die Postkarte|Postkarten|writable sendable flat portable
contract|der Vertrag|Verträge|sendable flat
diary/diaries|das Tagebuch|Tagebücher|flat
fairy tale|das Märchen|Märchen|tellable
story/stories|die Geschichte|Geschichten|tellable writable
recipe|das Rezept|Rezepte|sendable writable
""",
    "vehicle": """
car|das Auto|Autos
bus/buses|der Bus|Busse|transport
train|der Zug|Züge|transport
bicycle|das Fahrrad|Fahrräder
motorbike|das Motorrad|Motorräder
taxi|das Taxi|Taxis
tram|die Straßenbahn|Straßenbahnen|transport
ship|das Schiff|Schiffe|transport
boat|das Boot|Boote
plane|das Flugzeug|Flugzeuge|transport
truck|der Lastwagen|Lastwagen
tractor|der Traktor|Traktoren
""",
    "furniture": """
table|der Tisch|Tische|surface
chair|der Stuhl|Stühle|surface
bed|das Bett|Betten|surface
sofa|das Sofa|Sofas|surface
cupboard|der Schrank|Schränke|interior
shelf/shelves|das Regal|Regale
desk|der Schreibtisch|Schreibtische|surface
armchair|der Sessel|Sessel|surface
chest of drawers/chests of drawers|die Kommode|Kommoden|surface
bench/benches|die Bank|Bänke|surface
carpet|der Teppich|Teppiche|surface
""",
    "clothing": """
shirt|das Hemd|Hemden|flat
skirt|der Rock|Röcke|flat
dress/dresses|das Kleid|Kleider|gift flat
coat|der Mantel|Mäntel|flat
jacket|die Jacke|Jacken|flat
hat|der Hut|Hüte|flat
sweater|der Pullover|Pullover|gift flat
scarf/scarves|der Schal|Schals|gift flat
tie|die Krawatte|Krawatten|gift flat
blouse|die Bluse|Blusen|flat
cap|die Mütze|Mützen|flat
suit|der Anzug|Anzüge|flat
belt|der Gürtel|Gürtel|flat
""",
    "footwear": """
shoe|der Schuh|Schuhe
sock|die Socke|Socken
glove|der Handschuh|Handschuhe
boot|der Stiefel|Stiefel
""",
    "device": """
computer|der Computer|Computer|switch upright
lamp|die Lampe|Lampen|switch upright
radio|das Radio|Radios|switch upright
television|der Fernseher|Fernseher|switch
camera|die Kamera|Kameras|portable flat gift switch
washing machine|die Waschmaschine|Waschmaschinen|switch
fridge|der Kühlschrank|Kühlschränke|openable
oven|der Ofen|Öfen|switch
heater|die Heizung|Heizungen|switch
watch/watches|die Uhr|Uhren|portable flat gift
vacuum cleaner|der Staubsauger|Staubsauger|switch
printer|der Drucker|Drucker|switch
""",
    "portable": """
key|der Schlüssel|Schlüssel|flat
umbrella|der Regenschirm|Regenschirme|flat
ticket|die Fahrkarte|Fahrkarten|flat
map|die Landkarte|Landkarten|flat
stamp|die Briefmarke|Briefmarken|flat
coin|die Münze|Münzen|flat
ring|der Ring|Ringe|gift flat
hammer|der Hammer|Hämmer|flat
hairbrush/hairbrushes|die Haarbürste|Haarbürsten|flat
pencil|der Bleistift|Bleistifte|flat
notebook|das Heft|Hefte|flat
wallet|der Geldbeutel|Geldbeutel|flat
passport|der Pass|Pässe|flat
towel|das Handtuch|Handtücher|flat
blanket|die Decke|Decken|flat
pillow|das Kissen|Kissen|flat
knife/knives|das Messer|Messer|flat
fork|die Gabel|Gabeln|flat
spoon|der Löffel|Löffel|flat
photo|das Foto|Fotos|flat sendable
present|das Geschenk|Geschenke|flat
toothbrush/toothbrushes|die Zahnbürste|Zahnbürsten|flat
""",
    "container": """
bag|die Tasche|Taschen|openable interior
suitcase|der Koffer|Koffer|openable interior upright
backpack|der Rucksack|Rucksäcke|openable interior
box/boxes|die Schachtel|Schachteln|openable interior
basket|der Korb|Körbe|interior upright
parcel|das Paket|Pakete|openable sendable
glass/glasses|das Glas|Gläser|upright
cup|die Tasse|Tassen|upright
plate|der Teller|Teller|upright
bottle|die Flasche|Flaschen|openable upright
pot|der Topf|Töpfe|upright
pan|die Pfanne|Pfannen|upright
vase|die Vase|Vasen|upright gift
bowl|die Schüssel|Schüsseln|upright
bucket|der Eimer|Eimer|upright
""",
    "opening": """
door|die Tür|Türen|openable
window|das Fenster|Fenster|openable
gate|das Tor|Tore|openable
drawer|die Schublade|Schubladen|openable interior
""",
    "toy": """
ball|der Ball|Bälle|gift flat
doll|die Puppe|Puppen|gift flat
kite|der Drachen|Drachen|gift
teddy bear|der Teddybär|Teddybären|weak gift flat
puzzle|das Puzzle|Puzzles|gift flat
""",
    "instrument": """
piano|das Klavier|Klaviere
guitar|die Gitarre|Gitarren
violin|die Geige|Geigen
flute|die Flöte|Flöten
trumpet|die Trompete|Trompeten
drums|das Schlagzeug|-|nosubject
cello|das Cello|Cellos
""",
    "plant": """
tree|der Baum|Bäume
rose|die Rose|Rosen|blossom
flower|die Blume|Blumen|blossom
tulip|die Tulpe|Tulpen|blossom
bush/bushes|der Busch|Büsche
sunflower|die Sonnenblume|Sonnenblumen|blossom
""",
    "art": """
picture|das Bild|Bilder
painting|das Gemälde|Gemälde
statue|die Statue|Statuen
poster|das Plakat|Plakate
""",
    "show": """
film|der Film|Filme|event
play|das Theaterstück|Theaterstücke|event
programme|die Sendung|Sendungen|event
match/matches|das Spiel|Spiele|event
""",
    "music": """
song|das Lied|Lieder
melody/melodies|die Melodie|Melodien
concert|das Konzert|Konzerte|event
""",
    "meeting": """
lesson|die Unterrichtsstunde|Unterrichtsstunden|event
meeting|die Besprechung|Besprechungen|event
exam|die Prüfung|Prüfungen|event
party/parties|die Feier|Feiern|event
wedding|die Hochzeit|Hochzeiten|event
lecture|die Vorlesung|Vorlesungen|event
trip|der Ausflug|Ausflüge|event
competition|der Wettbewerb|Wettbewerbe|event
""",
    "idea": """
problem|das Problem|Probleme|explainable
question|die Frage|Fragen|askable
answer|die Antwort|Antworten
idea|die Idee|Ideen|explainable
mistake|der Fehler|Fehler|explainable
plan|der Plan|Pläne|explainable
task|die Aufgabe|Aufgaben|explainable
rule|die Regel|Regeln|explainable
joke|der Witz|Witze|tellable
word|das Wort|Wörter|explainable
dream|der Traum|Träume|tellable
secret|das Geheimnis|Geheimnisse|tellable
advantage|der Vorteil|Vorteile|explainable
reason|der Grund|Gründe|explainable
opinion|die Meinung|Meinungen
decision|die Entscheidung|Entscheidungen|explainable
""",
    "room": """
kitchen|die Küche|Küchen
living room|das Wohnzimmer|Wohnzimmer
bedroom|das Schlafzimmer|Schlafzimmer
bathroom|das Badezimmer|Badezimmer
cellar|der Keller|Keller
classroom|das Klassenzimmer|Klassenzimmer
flat|die Wohnung|Wohnungen
room|das Zimmer|Zimmer
garage|die Garage|Garagen
office|das Büro|Büros
""",
    "building": """
house|das Haus|Häuser
school|die Schule|Schulen
hospital|das Krankenhaus|Krankenhäuser
library/libraries|die Bibliothek|Bibliotheken
museum|das Museum|Museen
cinema|das Kino|Kinos
theatre|das Theater|Theater
restaurant|das Restaurant|Restaurants
supermarket|der Supermarkt|Supermärkte
bakery/bakeries|die Bäckerei|Bäckereien
pharmacy/pharmacies|die Apotheke|Apotheken
church/churches|die Kirche|Kirchen
hotel|das Hotel|Hotels
castle|das Schloss|Schlösser
factory/factories|die Fabrik|Fabriken
university/universities|die Universität|Universitäten
station|der Bahnhof|Bahnhöfe
airport|der Flughafen|Flughäfen
tower|der Turm|Türme
bridge|die Brücke|Brücken
swimming pool|das Schwimmbad|Schwimmbäder
stadium|das Stadion|Stadien
shop|das Geschäft|Geschäfte
café|das Café|Cafés
town hall|das Rathaus|Rathäuser
post office|das Postamt|Postämter
""",
    "outdoor": """
garden|der Garten|Gärten
park|der Park|Parks
forest|der Wald|Wälder
beach/beaches|der Strand|Strände
village|das Dorf|Dörfer
city/cities|die Stadt|Städte
lake|der See|Seen
river|der Fluss|Flüsse
island|die Insel|Inseln
mountain|der Berg|Berge
street|die Straße|Straßen
market|der Markt|Märkte
zoo|der Zoo|Zoos
meadow|die Wiese|Wiesen
playground|der Spielplatz|Spielplätze
sea|das Meer|Meere
harbour|der Hafen|Häfen
valley|das Tal|Täler
field|das Feld|Felder
""",
    "body": """
head|der Kopf|-
back|der Rücken|-
stomach|der Bauch|-
knee|das Knie|Knie
neck|der Hals|-
arm|der Arm|Arme
leg|das Bein|Beine
tooth/teeth|der Zahn|Zähne
foot/feet|der Fuß|Füße
hand|die Hand|Hände
""",
    "activity": """
football|der Fußball|-
tennis|das Tennis|-
chess|das Schach|-
basketball|der Basketball|-
handball|der Handball|-
volleyball|der Volleyball|-
""",
    "language": """
German|Deutsch|-
English|Englisch|-
French|Französisch|-
Spanish|Spanisch|-
Italian|Italienisch|-
Russian|Russisch|-
Chinese|Chinesisch|-
Polish|Polnisch|-
""",
}
